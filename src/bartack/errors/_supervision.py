"""The errors of supervisors, children and monitors: BT500 to BT509. How errors are declared: ``_root.py``."""

from __future__ import annotations

from bartack.errors._root import BartackError, message


class SupervisionError(BartackError, code="BT500"):
    """Something is wrong with a supervisor, a child of it, or the processes below them."""

    remedy = "Read the reason; it names the supervisor or the child."


@message("{path} is held: processes of an earlier attempt at this run are still alive")
class TreeLockedError(SupervisionError, code="BT501", retryable=True):
    """Processes that an earlier attempt at this run has started are still alive, so nothing is executed beside them."""

    path: str
    remedy = "Wait until they have ended, then repeat the command. 'fuser' with the path in the message names them."


@message("{owner}: {field}: {rule}")
class ChildSpecError(SupervisionError, ValueError, code="BT502"):
    """A child or a supervisor is described in a way that cannot work."""

    owner: str
    field: str
    rule: str
    remedy = "Give the field that the message names a value that keeps the rule."


@message()
class ChildStartError(SupervisionError, code="BT503"):
    """A child did not get ready, so what was started with it was stopped again."""

    child: str
    reason: str
    problem: str
    remedy = "Read the reason and what the child wrote; start it by itself to see more."

    def describe(self) -> str:
        return f"{self.child} did not start ({self.reason})" + (f": {self.problem}" if self.problem else "")


@message("{supervisor} has no child {child!r}")
class ChildNotFoundError(SupervisionError, code="BT504"):
    """A supervisor has no child with this name."""

    supervisor: str
    child: str
    remedy = "Look at which_children(): it names all of them."


@message("{child} is {state} and cannot be {wanted}")
class ChildStateError(SupervisionError, code="BT505"):
    """A child is in a state in which this cannot be done with it."""

    child: str
    state: str
    wanted: str
    remedy = "A child that runs is terminated first; one that does not run can be started again or taken off the list."


@message(
    "{supervisor} gave up: more than {max_restarts} restarts in {max_seconds:g} s, the last for {child} ({reason})"
)
class SupervisorExhaustedError(SupervisionError, code="BT506"):
    """Children ended more often than the supervisor may restart them, so it stopped all of them."""

    supervisor: str
    child: str
    reason: str
    max_restarts: int
    max_seconds: float
    remedy = (
        "Read the crash reports: they say why the children ended. Then mend that, or allow more restarts."
    )


@message("{supervisor} is not running")
class SupervisorNotRunningError(SupervisionError, code="BT507"):
    """A supervisor takes no orders before it has started its children and after it began to stop them."""

    supervisor: str
    remedy = "Use it inside its 'async with' block."


@message("the monitors of {owner} cannot be reached")
class MonitorUnavailableError(SupervisionError, code="BT508", retryable=True):
    """Whoever keeps the monitors is gone, so nobody knows which there are."""

    owner: str
    remedy = "Resume the run, or start the supervisor again; then ask once more."


@message("there is no monitor {monitor}, and no message of it")
class MonitorNotFoundError(SupervisionError, code="BT509"):
    """A monitor is gone, and no message of it waits: it was received before, or the monitor was let go of."""

    monitor: str
    remedy = "Wait for the message of a monitor once, in one place: by its 'down', or in the mailbox."
