"""For `make docs`: examples in docstrings become code, as they would be read in the source."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension

EXAMPLE = re.compile(r"^( *)>>> .*\n(?:\1\S.*(?:\n|\Z)|\1 +\S.*(?:\n|\Z))*", re.MULTILINE)


class Doctests(Extension):  # type: ignore[misc, unused-ignore]
    def on_object(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = EXAMPLE.sub(r"```pycon\n\g<0>\n```\n", obj.docstring.value + "\n")
