"""The meta-RL family: each method is one short file that composes tasks, rules, lives and estimators, with its own experiments."""
