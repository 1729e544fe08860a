"""Two reviewers rate files, a clerk files a ticket for each risky one. Every prompt costs money, every ticket is an effect."""

from bartack import Context, step, worker


@step
def file_ticket(file: str, risk: int) -> str:
    """An effect that must not happen twice for one finding."""
    with open("tickets.txt", "a") as tickets:
        tickets.write(f"{file} {risk}\n")
    return f"T-{file}"


@worker
async def reviewer(ctx: Context, files: list[str]) -> int:
    """Rate files one by one; a finished prompt is never asked again."""
    for file in files:
        risk = await ctx.think(f"Rate the risk of {file} from 0 to 9.", type=int)
        await ctx.mailbox.findings.send({"file": file, "risk": risk})
    return len(files)


@worker
async def clerk(ctx: Context, expected: int) -> list[str]:
    """Take findings as they come."""
    tickets: list[str] = []
    for _ in range(expected):
        found = await ctx.mailbox.findings.receive(60)
        if found["risk"] >= 5:
            tickets.append(await file_ticket(found["file"], found["risk"]))
    return tickets


@worker
async def main(ctx: Context) -> list[str]:
    """All of them side by side."""
    files = await ctx.list("*.diff")
    half = len(files) // 2
    _, _, tickets = await ctx.delegate((reviewer(files[:half]), reviewer(files[half:]), clerk(len(files))))
    return sorted(tickets)
