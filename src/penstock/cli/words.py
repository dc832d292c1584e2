"""Errors in the words of the command line: the library speaks of arguments, the terminal of options and recipes."""

from __future__ import annotations

import re
from functools import cache

_READING = "names|dtypes|separator|header|quote|encoding|missing|format"
# What the library says, and what stands for it on the command line; applied in this order.
_WORDS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(said), instead)
    for said, instead in (
        (r"\boverwrite=True\b", "--overwrite"),
        (r"\bresume=True\b|TrainJob\.resumed\(…\)", "--resume"),
        (r"\bon_error='(\w+)'((?: \([^)]*\))? or )'(\w+)'", r"--on-error \1\2\3"),
        (r"\bon_error='(\w+)'", r"--on-error \1"),
        (r"\bon_error (must be|asked)", r"--on-error \1"),
        (r"write a recipe with workflow\.to_yaml\(path\)", "penstock init DATA -o FILE drafts one"),
        (r"\btrust=\['([^']+)'\] \(--trust \1\)", r"--trust \1"),
        (r"\blabel=…", "--label COLUMN"),
        (r"recipe=…; penstock\.jobs\.draft_recipe\(.*?makes", "--recipe FILE or --preset NAME; --label COLUMN drafts"),
        (r"\bvalid_by\b", "--valid-by"),
        (r", or None, got ", ", got "),
        (r"\brecipe=…", "--recipe FILE or --preset NAME"),
        (r"\bdevice='([^']+)'", r"--device \1"),
        (r"\bpass dtypes=\{'([^']+)': …\}", r"say input.dtypes: {DTYPE: [\1]} in a recipe"),
        (r"\bheader=True\b", "input.header: true"),
        (r"\bheader=False\b", "input.header: false"),
        (rf"\b({_READING})=(?=['{{\s,;.)]|$)", r"input.\1 "),
        (r"\bpass (input\.\w+)", r"say in a recipe \1"),
        (r"(input\.\w+) (?=[,;.)]|$)", r"\1"),
        (r"  +", " "),
    )
)


def in_options(text: str) -> str:
    """A message of the library as the command line would say it.

    Args:
        text: the message.

    Returns:
        The same with options in the place of arguments.

    >>> in_options("out exists already; pass overwrite=True to replace it")
    'out exists already; pass --overwrite to replace it'
    >>> in_options("mend the line, or pass on_error='skip' (drop such lines) or 'null'")
    'mend the line, or pass --on-error skip (drop such lines) or null'
    >>> in_options("x is empty: pass names= and dtypes=")
    'x is empty: say in a recipe input.names and input.dtypes'
    >>> in_options("valid_share must be at most 0.9; a smaller batch_size would do, and 'batch_size' in a file")
    "--valid-share must be at most 0.9; a smaller --batch-size would do, and 'batch_size' in a file"
    """
    for said, instead in _WORDS:
        text = said.sub(instead, text)
    return _settings().sub(lambda found: "--" + found[0].replace("_", "-"), text)


@cache
def _settings() -> re.Pattern[str]:
    """Settings by name; one that is a word of the language only where it stands as a setting does."""
    from penstock.jobs.settings import command_line_options  # here, as most commands end without an error

    names = sorted(command_line_options(), key=len, reverse=True)
    own, words = ("|".join(name for name in names if ("_" in name) is is_own) for is_own in (True, False))
    return re.compile(rf"(?<![\w.'\"=/{{-])(?:(?:{own})(?![\w.'\"=/])|^(?:{words})(?= must be ))")
