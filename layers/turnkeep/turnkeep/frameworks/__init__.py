"""Agents of other frameworks, hosted unchanged: Strands Agents (``strands``) and Pydantic AI (``pydantic_ai``).

Each module needs its framework, which ``layers/agent/requirements.txt`` names; nothing else in turnkeep imports them.
"""
