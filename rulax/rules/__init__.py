"""How an agent learns: every update rule, behind one interface. Each file holds one rule, made by the function of the same name."""

from rulax.rules.registry import UnknownRule, list_rules, make_rule

__all__ = ["UnknownRule", "list_rules", "make_rule"]
