"""Agents: AI programs that prompts go to. The scripted one needs no model."""

from bartack.agents._scripted import Prompt, ScriptedAgent, ScriptedReply

__all__ = ["Prompt", "ScriptedAgent", "ScriptedReply"]
