"""The errors of supervisors, children and monitors: BT500 to BT509. How errors are declared: ``_root.py``."""

from __future__ import annotations

from bartack.errors._root import BartackError, message


class SupervisionError(BartackError, code="BT500"):
    """Something is wrong with a supervisor, one of its children, or their processes."""

    remedy = "Read the reason; it names the supervisor or the child."


@message("{path} is locked: processes of an earlier attempt at this run are still alive")
class TreeLockedError(SupervisionError, code="BT501", retryable=True):
    """Processes that an earlier attempt at this run started are still alive, so nothing new is executed."""

    path: str
    remedy = "Wait until these processes have ended, then repeat the command. 'fuser' with the path in the message lists them."


@message("{owner}: {field}: {rule}")
class ChildSpecError(SupervisionError, ValueError, code="BT502"):
    """The specification of a child or a supervisor is invalid."""

    owner: str
    field: str
    rule: str
    remedy = "Give the field that the message names a value that follows the rule."


@message()
class ChildStartError(SupervisionError, code="BT503"):
    """A child did not become ready, so the children started with it were stopped again."""

    child: str
    reason: str
    problem: str
    remedy = "Read the reason and the output of the child. Start the child alone to see more."

    def describe(self) -> str:
        return f"{self.child} did not start ({self.reason})" + (f": {self.problem}" if self.problem else "")


@message("{supervisor} has no child {child!r}")
class ChildNotFoundError(SupervisionError, code="BT504"):
    """A supervisor has no child with this name."""

    supervisor: str
    child: str
    remedy = "Choose a name that which_children() returns."


@message("{child} is {state} and cannot be {wanted}")
class ChildStateError(SupervisionError, code="BT505"):
    """The operation is not possible in the current state of the child."""

    child: str
    state: str
    wanted: str
    remedy = (
        "Terminate a running child first. A child that is not running can be restarted or taken off the list."
    )


@message(
    "{supervisor} gave up: more than {max_restarts} restarts in {max_seconds:g} s, the last for {child} ({reason})"
)
class SupervisorExhaustedError(SupervisionError, code="BT506"):
    """Children ended more often than the restart limit allows, so the supervisor stopped all of them."""

    supervisor: str
    child: str
    reason: str
    max_restarts: int
    max_seconds: float
    remedy = "Read in the crash reports why the children ended. Fix the cause, or allow more restarts."


@message("{supervisor} is not running")
class SupervisorNotRunningError(SupervisionError, code="BT507"):
    """A supervisor accepts requests only after it has started its children and before it begins to stop them."""

    supervisor: str
    remedy = "Use the supervisor inside its 'async with' block."


@message("the monitor registry of {owner} is unavailable")
class MonitorUnavailableError(SupervisionError, code="BT508", retryable=True):
    """The monitor registry is unavailable."""

    owner: str
    remedy = "Resume the run, or start the supervisor again, then repeat the request."


@message("there is no monitor {monitor}, and no message of it is waiting")
class MonitorNotFoundError(SupervisionError, code="BT509"):
    """The monitor does not exist, and no message of it is waiting: it was already received, or the monitor was released."""

    monitor: str
    remedy = "Wait for the message of a monitor once, in one place: with its 'down', or in the mailbox."
