"""A program for requests from anywhere: each message leaves its effect in a file, and then a person decides."""

from bartack import Context, worker


@worker
async def main(ctx: Context, effects: str) -> str:
    inbox = ctx.mailbox.inbox
    while (text := await inbox.receive(type=str)) != "ask":
        await ctx.shell("sh", "-c", f"echo {text} >> {effects}")
    return await ctx.ask("What now?")
