"""The errors of the command line (from BT1001 on), plugins (BT1010) and pages (BT1020). How errors are declared: ``_root.py``."""

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


@message()
class PluginError(BartackError, code="BT1010"):
    """A plugin for a coding agent could not be built, checked or installed."""

    place: str
    problem: str
    remedy: str = "Read the message; it names the file and the problem."

    def describe(self) -> str:
        return f"{self.place}: {self.problem}" if self.place else self.problem


@message()
class PluginTraitError(PluginError, code="BT1011"):
    """The program does not say which of its traits is the plugin."""

    place: str
    problem: str
    remedy: str = (
        "Export one trait with the base Agent from the entry module, or choose one with --trait NAME."
    )


@message()
class PluginOutputError(PluginError, code="BT1012"):
    """The output folder holds other files than those of a former build, and nothing was changed."""

    place: str
    problem: str
    remedy: str = "Choose an empty folder with -o, or one that was built before and not edited since."


@message()
class PluginDescriptionError(PluginError, code="BT1013"):
    """A skill or an agent of the plugin has no description, by which a model chooses it."""

    place: str
    problem: str
    remedy: str = "Write a comment above the declaration. With --allow-placeholder a fixed text is used."


@message()
class PluginInvalidError(PluginError, code="BT1014"):
    """A file of the plugin breaks a rule. The message names the file, the line and the key."""

    place: str
    problem: str
    remedy: str = "Fix the program or the setting that the value comes from, then build the plugin again."


@message()
class PluginInstallError(PluginError, code="BT1015"):
    """The plugin was not installed: there is no Claude Code, it refused a step, or a command does not answer."""

    place: str
    problem: str
    remedy: str = "Fix the problem, then repeat the command. An incomplete installation was undone."


@message()
class EntryNotFoundError(BartackError, code="BT1016"):
    """A client asked to start an entry that the plugin or the project does not have."""

    asked: str
    known: tuple[str, ...] = ()
    remedy = "Name one of the entries; [mcp.entries] of bartack.toml adds one."

    def describe(self) -> str:
        listed = f"there are: {', '.join(self.known)}" if self.known else "there are none"
        return f"no entry {self.asked!r} ({listed})"


@message("cannot serve pages on port {port}: {reason}")
class WebPortError(BartackError, code="BT1020"):
    """The port of ``bartack web`` is taken, or the server there does not belong to this user."""

    port: int
    reason: str
    remedy = "Choose another port with --port, or web.port in bartack.toml."


@message("not signed in: {reason}")
class WebEnterError(BartackError, code="BT1021"):
    """A browser has no session, or the link with which it tried to get one is wrong, used or too old."""

    reason: str
    remedy = "Get a new link with 'bartack web link', and open it within a minute. Each link works once."


@message("refused: {reason}")
class WebRefusedError(BartackError, code="BT1022"):
    """The server of ``bartack web`` refused a request: its origin, its form or its moment is not allowed."""

    reason: str
    status: int = 403
    remedy = "Use the page that 'bartack web' opened. The message names the rule."


@message()
class RunBeingReadError(BartackError, code="BT1023"):
    """The journal of a run is long, and the server of ``bartack web`` is still reading it."""

    run: str
    built: float
    """Which part was read, from 0 to 1."""
    remedy = "Ask again in a few seconds. The head of the run and its last entries can be read already."

    def describe(self) -> str:
        return f"the journal of {self.run} is being read: {self.built:.0%} so far"


@message("{name}: {problem}")
class WebQueryError(BartackError, code="BT1024"):
    """A part of the address of a page or request of ``bartack web`` has a value that is not allowed."""

    name: str
    problem: str
    remedy = "Correct the address. The reference of the web API lists what each part may be."


@message("{what}")
class NotShownError(BartackError, code="BT1025"):
    """What was asked for is not in the run: an entry, a value, a call of an agent, a receipt, a snapshot or a file."""

    what: str
    remedy = "Open the page of the run, and follow a link from there."
