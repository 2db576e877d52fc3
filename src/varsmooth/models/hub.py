"""Models on the Hugging Face Hub: a repository that holds the folder of a model as it is."""

from pathlib import Path

from varsmooth.errors import VarsmoothError, require

PREFIX = "hf://"
FILES = ("config.json", "model.safetensors", "README.md")


def fetch(address: str) -> Path:
    """The folder of the model at `hf://owner/name`, or at `hf://owner/name@revision`.

    Only the description, the weights and the card are fetched, into the Hub's own cache. Loading
    them runs no code of the repository.
    """
    name, _, revision = address.removeprefix(PREFIX).partition("@")
    require(
        name.count("/") == 1, f"{address} should be hf://owner/name or hf://owner/name@revision"
    )
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise VarsmoothError(
            f"{address} needs huggingface_hub; install it with: pip install 'varsmooth[hub]'"
        ) from error
    try:
        return Path(snapshot_download(name, revision=revision or None, allow_patterns=[*FILES]))
    except Exception as error:  # no network, no such repository, no permission, a bad name
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise VarsmoothError(
            f"{address} cannot be fetched ({reason}); check the name and the connection, or name "
            "the folder of a copy on this machine"
        ) from error
