"""Evaluates the agent's rules and records them in the journal (``DRAY_RECORD``)."""

from typing import TypeVar

from dray.recording.journal import Notes
from dray.recording.questions import name_of
from dray_node_agent.decisions.rules import AgentRule, recorded_answer

A = TypeVar("A")


class AgentRuleRecorder:
    """Evaluates rules; records them if there is a journal."""

    def __init__(self, notes: Notes | None = None) -> None:
        self._notes = notes

    def evaluate(self, rule: AgentRule[A]) -> A:
        """The rule's answer."""
        answer = rule.answer()
        if self._notes is not None:
            kept = rule.redacted_answer(answer)
            self._notes.decided(name_of(type(rule)), rule.redacted(), recorded_answer(kept))
        return answer
