"""`varsmooth completion`: verbs and options for the shell's tabulator key."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

_SCRIPT = """\
_varsmooth() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" known=""
    case "${{COMP_WORDS[1]}} ${{COMP_WORDS[2]}}" in
{cases}
    esac
    [ "$COMP_CWORD" -eq 1 ] && known="{verbs}"
    COMPREPLY=($(compgen -W "$known" -- "$word"))
}}
complete -o default -F _varsmooth varsmooth
"""


def completion(shell: Literal["bash", "zsh"]) -> None:
    """Print a script that completes verbs and options in your shell.

    examples:
      varsmooth completion bash > ~/.local/share/bash-completion/completions/varsmooth
      varsmooth completion zsh >> ~/.zshrc

    Args:
        shell: which shell to write for
    """
    from varsmooth.cli import VERBS
    from varsmooth.cli.parser import build_parser

    verbs = _options(build_parser(VERBS))
    cases = "\n".join(f'        {pattern}) known="{words}" ;;' for pattern, words in _cases(verbs))
    if shell == "zsh":
        print("autoload -U +X bashcompinit && bashcompinit")
    print(_SCRIPT.format(cases=cases, verbs=" ".join(verbs)), end="")


def _options(parser: Any) -> dict[str, Any]:
    """verb → its options, or the same for the verbs of a group."""
    found: dict[str, Any] = {}
    for name, inner in parser._subcommands_action._name_parser_map.items():
        if getattr(inner, "_subcommands_action", None) is not None:
            found[name] = _options(inner)
        else:
            found[name] = " ".join(sorted(inner._option_string_actions))
    return found


def _cases(verbs: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Patterns of the first two words, the more exact ones first, and what may follow."""
    from varsmooth.cli import VERBS

    for name, options in verbs.items():
        if isinstance(options, str):
            yield f'"{name} "*', options
            continue
        for inner, words in options.items():
            yield f'"{name} {inner}"', words
        default = getattr(VERBS[name], "default", None)  # its options may follow the group's name
        yield f'"{name} "*', " ".join([*options, options.get(default, "")]).strip()
