"""What notebooks and terminals show of tensors, results and connections.

Imported when something is shown, and not before. A plain `repr` needs none of it.
"""
