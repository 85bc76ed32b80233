"""Several ranks of one job: their files side by side, matched by what they exchange."""
