"""What tables and pages say about skills. Without JAX, for which pages must not wait."""

SKILL_COLUMNS = ("agent", "skills", "information", "effective", "recognised", "worst skill")
SKILL_NOTE = (
    "skills: information is the mean of log q(z|s) - log p(z) in nats over the second halves of episodes, a lower bound of I(S; Z) "
    "and at most log(skills); effective is its exponential; recognised is how often the likeliest skill is the one followed"
)
