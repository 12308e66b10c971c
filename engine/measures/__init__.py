"""What is measured under an edit: text, replies, margins, tasks."""

from engine.measures.base import Derived, Measure, TokenMeasure, register_measure

__all__ = ["Derived", "Measure", "TokenMeasure", "register_measure"]
