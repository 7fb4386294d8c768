"""`gmaflow --print-completion bash`: a script that completes verbs, options and their choices.

The script is static, so that Tab does not start Python. Its words come from the help of each verb.
"""

import os
import re
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from importlib import import_module
from io import StringIO

from gmaflow.cli.app import VERBS
from gmaflow.errors import check_known

SHELLS = ("bash", "zsh")

_ZSH = "autoload -U +X compinit bashcompinit && compinit && bashcompinit\n"
# Without a match the shell completes names of files.
_SCRIPT = """_gmaflow() {{
  local words="" before="${{COMP_WORDS[COMP_CWORD-1]}}" verb="${{COMP_WORDS[1]}}"
  case "$COMP_CWORD:$verb" in
    1:*) words="{verbs}" ;;
{actions}
    *)
      [[ " {groups} " == *" $verb "* ]] && verb="$verb ${{COMP_WORDS[2]}}"
      case "$verb:$before" in
{choices}
        *)
          if [[ "${{COMP_WORDS[COMP_CWORD]}}" == -* ]]; then
            case "$verb" in
{options}
            esac
          fi ;;
      esac ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _gmaflow gmaflow"""


def make_script(shell: str = "bash") -> str:
    """Return the script that a shell reads at its start."""
    check_known("shell", shell, SHELLS)
    os.environ |= {"COLUMNS": "1000", "NO_COLOR": "1"}  # help in long lines
    groups, choices, options = [], [], []
    actions: list[str] = []
    for verb in VERBS:
        actions_found = list(find_actions(verb))
        if actions_found:
            groups.append(verb)
            actions.append(f'    2:{verb}) words="{" ".join(actions_found)}" ;;')
        for command in ([verb, action] for action in actions_found) if actions_found else [[verb]]:
            text, name = help_of(command), " ".join(command)
            heads = re.findall(r"^\W (-.*?)(?:  |$)", text, re.MULTILINE)
            flags = re.findall(r"--[a-z][a-z-]+", " ".join(heads))
            options.append(f'              "{name}") words="{" ".join(flags)}" ;;')
            for flag, listed in re.findall(r"(--[a-z-]+) \{([\w.,+-]+,[\w.,+-]+)\}", text):
                choices.append(f'        "{name}:{flag}") words="{listed.replace(",", " ")}" ;;')
    script = _SCRIPT.format(
        verbs=" ".join(VERBS),
        actions="\n".join(actions),
        groups=" ".join(groups),
        choices="\n".join(choices),
        options="\n".join(options),
    )
    return _ZSH + script if shell == "zsh" else script


def find_actions(verb: str) -> Iterator[str]:
    """Yield the words that a verb wants next, such as the presets of `train`."""
    text = help_of([verb])
    if match := re.match(rf"usage: gmaflow {verb} ([A-Z]+) \.\.\.\n", text):
        listed = text.partition(f"\n{match[1].lower()}s:\n")[2]
        yield from re.findall(r"^  ([\w-]+) {2,}", listed.partition("\n\n")[0], re.MULTILINE)


def help_of(command: list[str]) -> str:
    verb, *rest = command
    shown = StringIO()
    with redirect_stdout(shown), suppress(SystemExit):
        import_module(f"gmaflow.cli.{verb}").main([*rest, "--help"])
    return shown.getvalue()
