"""What words for amounts mean: most, nearly all, little, a while. One number each, in all rooms.

The words are rough, and so is what they are asked of: a verdict that turns on the difference
between 0.8 and 0.9 rests on something else, or on nothing. What is worth a line at all, and from
where on a loss is more than low, says ``Severity.least``.
"""

from __future__ import annotations

from typing import Final

# More than half: nothing else is as much. By definition.
MOSTLY: Final = 0.5
# Beside the rest it decides nothing. 0.1 to 0.2 stood for it, 0.75 to 0.95 for nearly all, in fifty
# places, and all that was recorded is judged alike (``make golden``).
LITTLE: Final = 0.1
NEARLY_ALL: Final = 1 - LITTLE
# What comes back at least where nobody has measured how much of it does.
SURELY: Final = MOSTLY
# Smaller shares are within the error of some hundred stack samples: two standard errors of 0.03
# among 130 of them. Nor is so little of a time that is measured worth other code.
BEYOND_CHANCE: Final = 0.03
# Of fewer samples no share is known to better than a fifth (two standard errors of a half).
LEAST_SAMPLES: Final = 20
# Once is chance, and twice may be: what comes a third time goes on.
AGAIN: Final = 3
# A series of fewer points has no trend, and no parts to compare. With 10 in place of it a late rank
# that the bench plants was not found (``make golden``).
LEAST_POINTS: Final = 8
# Who waits, or is watched, for less may have met something that passes.
A_WHILE_S: Final = 10.0
A_MINUTE_S: Final = 60.0
# Lines, kinds or processes that a finding shows of many.
MOST_SHOWN: Final = 3
