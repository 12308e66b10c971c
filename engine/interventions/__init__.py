"""Two exact ways to apply an edit: in the weights, and at the outputs; and what can be done to a unit's output."""

from engine.interventions.kinds import INTERVENTIONS, Intervention, register_intervention

__all__ = ["INTERVENTIONS", "Intervention", "register_intervention"]
