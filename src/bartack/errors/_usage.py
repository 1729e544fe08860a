"""The errors of the command line: BT1001 and BT1002. How errors are declared: ``_root.py``."""

from __future__ import annotations

from bartack.errors._root import BartackError, message


@message()
class UnknownCodeError(BartackError, code="BT1001"):
    """No error has this code."""

    asked: str
    near: tuple[str, ...] = ()
    remedy = "'bartack explain' without a code lists all codes."

    def describe(self) -> str:
        hint = f"; did you mean {' or '.join(self.near)}?" if self.near else ""
        return f"no error has the code {self.asked!r}{hint}"


@message("{command}: {problem}")
class UsageError(BartackError, code="BT1002"):
    """A command was called with a wrong name, option or value."""

    command: str
    problem: str
    remedy: str = "Run the command with --help to see its arguments."

    def advise(self) -> str:
        if self.remedy not in {"", UsageError.remedy}:
            return self.remedy
        if "\nusage: " in self.problem:
            return "Give the arguments as the usage shows them. Arguments of a program follow --: bartack run FILE -- ..."
        return f"'{self.command} --help' shows its arguments." if self.command.startswith("bartack ") else ""
