"""`rulax tune` and `rulax train --tune`: searches for settings, then trains with the best on seeds of their own."""
