"""Several Ray nodes on this machine, for tests: python -m tests.ray_nodes

Prints the address, then reads `remove` (end a node at once, as a power cut does) and `add` from
standard input, and answers `done`. Ends with its input.
"""

import sys

from ray.cluster_utils import Cluster

if __name__ == "__main__":
    head = {"num_cpus": 0, "include_dashboard": False, "ray_client_server_port": 25001}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    print(cluster.address, flush=True)
    for word in sys.stdin:
        if word.strip() == "remove":
            cluster.remove_node(nodes.pop(), allow_graceful=False)
        else:
            for attempt in range(10):  # on a busy machine a node may start too slowly
                try:
                    nodes.append(cluster.add_node(wait=False, num_cpus=1))
                    break
                except Exception as error:
                    print(f"attempt {attempt}: {error}", file=sys.stderr, flush=True)
        print("done", flush=True)
    cluster.shutdown()  # type: ignore[no-untyped-call]
