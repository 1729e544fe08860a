"""A program for chaos among nodes: commands that report to a witness and edit files, a prompt, messages, and a question.

An effect reports the run, the fence of the owner that has begun it, the key of its step, and each moment in which it moves; when it
begins, also the keys whose edits it finds in its workspace. One line is one write to a file that all see, so the order of the lines
is the order of what happened, whichever node it happened on. An edit adds the key of its step to a file of the workspace.
A long effect has changed another one before, so that a copy is made while it moves.
"""

from bartack import Context, worker

EFFECT = """
opened=$(grep -o '"journal.opened","data":{[^}]*' "$BARTACK_RUN_DIR/journal.ndjson" | tail -n 1)
fence=$(echo "$opened" | sed 's/.*"fence":\\([0-9]*\\).*/\\1/')
touch edits.txt
found=$(paste -sd , edits.txt)
say() { echo "$BARTACK_RUN $fence $BARTACK_STEP $1" >> "$0"; }
say "begin ,$found"
for move in $(seq "$2"); do
  sleep 0.03; say moves
  if test "$move" = 9; then echo "$BARTACK_STEP" >> drafts.txt; fi
done
echo "$BARTACK_STEP" >> edits.txt
say end
printf %s "$1"
"""


async def effect(ctx: Context, witness: str, name: str, moves: int = 5) -> str:
    """Do something that the witness sees."""
    return str(await ctx.shell("sh", "-c", EFFECT, witness, name, str(moves)))


@worker
async def cutter(ctx: Context, witness: str, rounds: int, long: int) -> list[str]:
    """Sends pieces one by one, and waits for each to come back."""
    back: list[str] = []
    for number in range(rounds):
        moves = long if number == 1 else 5
        await ctx.mailbox.pieces.send(await effect(ctx, witness, f"cut{number}", moves))
        back.append(await ctx.mailbox.stitched.receive(600, type=str))
    await ctx.mailbox.pieces.send("")
    return back


@worker
async def stitcher(ctx: Context, witness: str) -> int:
    """Sends back what it receives."""
    count = 0
    while piece := await ctx.mailbox.pieces.receive(600, type=str):
        await ctx.mailbox.stitched.send(await effect(ctx, witness, f"{piece}-stitched"))
        count += 1
    return count


@worker
async def main(ctx: Context, witness: str, rounds: int, long: int) -> dict[str, object]:
    """Two workers at a time, and then everything else."""
    back, count = await ctx.delegate((cutter(witness, rounds, long), stitcher(witness)))
    summary = await ctx.think("Summarise the pieces", agent="writer")
    shipped = await ctx.ask("Ship it?", type=bool)
    heard: list[str] = []
    while (text := await ctx.mailbox.outside.receive(600, type=str)) != "done":
        heard.append(text)
    await ctx.append("made.txt", f"{count}\n")
    await effect(ctx, witness, "shipped")
    return {"pieces": back, "summary": summary, "shipped": shipped, "heard": heard}
