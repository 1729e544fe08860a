"""Two reviewers rate files; a clerk files a ticket for each risky one. Every prompt costs money, every ticket is an effect."""

from dataclasses import dataclass

from bartack import Context, step, worker


@dataclass(frozen=True)
class Finding:
    """The message of a reviewer to the clerk."""

    file: str
    risk: int


@step
def file_ticket(finding: Finding) -> str:
    """File a ticket: an effect that must not happen twice for one finding."""
    with open("tickets.txt", "a") as tickets:
        tickets.write(f"{finding.file} {finding.risk}\n")
    return f"T-{finding.file}"


@worker
async def reviewer(ctx: Context, files: list[str]) -> int:
    """Rate files one by one; a finished prompt is never sent again."""
    for file in files:
        risk = await ctx.think(f"Rate the risk of {file} from 0 to 9.", type=int)
        await ctx.mailbox.findings.send(Finding(file, risk))
    return len(files)


@worker
async def clerk(ctx: Context, expected: int) -> list[str]:
    """Receive findings as they arrive."""
    tickets: list[str] = []
    for _ in range(expected):
        found = await ctx.mailbox.findings.receive(60, type=Finding)
        if found.risk >= 5:
            tickets.append(await file_ticket(found))
    return tickets


@worker
async def main(ctx: Context) -> list[str]:
    """Run all workers in parallel."""
    files = await ctx.list("*.diff")
    half = len(files) // 2
    _, _, tickets = await ctx.delegate((reviewer(files[:half]), reviewer(files[half:]), clerk(len(files))))
    return sorted(tickets)
