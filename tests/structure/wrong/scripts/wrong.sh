# Checks the store. Of all ranks, the first one asks.
