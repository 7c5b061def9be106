"""How fast and how small: every figure beside a raw limit that is measured in the same run."""
