def from_first(n): return n
def first(): return True
def leave(): pass
