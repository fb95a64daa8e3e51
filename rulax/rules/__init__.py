"""How an agent learns: every update rule behind one interface. A rule is made by the function of the same name as its file."""

from rulax.rules.registry import UnknownRule, list_rules, make_rule

__all__ = ["UnknownRule", "list_rules", "make_rule"]
