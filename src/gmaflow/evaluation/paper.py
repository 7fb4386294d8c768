"""The paper's own figures for what we measure too, to be laid beside ours.

From Jiang et al., "Learning to Estimate Hidden Motions with Global Motion Aggregation" (ICCV 2021).
"C+T" are trained on Chairs and Things, "C+T+S/K" on Sintel or KITTI as well, so that what they are
judged on is data they have seen. Only whole training sets compare.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class PaperRow:
    """A row of table 2: mean errors, and Fl in percent."""

    method: str
    training: str
    clean: float
    final: float
    kitti: float
    kitti_fl: float


TABLE_2 = (
    PaperRow("RAFT", "C+T", 1.43, 2.71, 5.04, 17.4),
    PaperRow("GMA (p only)", "C+T", 1.48, 2.88, 5.01, 16.9),
    PaperRow("GMA (+p)", "C+T", 1.33, 2.87, 4.83, 16.6),
    PaperRow("GMA", "C+T", 1.30, 2.74, 4.69, 17.1),
    PaperRow("RAFT", "C+T+S/K", 0.76, 1.22, 0.63, 1.5),
    PaperRow("GMA (p only)", "C+T+S/K", 0.64, 1.08, 0.56, 1.2),
    PaperRow("GMA (+p)", "C+T+S/K", 0.65, 1.11, 0.58, 1.3),
    PaperRow("GMA", "C+T+S/K", 0.62, 1.06, 0.57, 1.2),
)

TABLE_1 = {
    "clean": {
        "noc": (0.32, 0.29),
        "occ": (5.36, 4.25),
        "occ-in": (4.45, 3.81),
        "occ-out": (7.01, 5.03),
        "all": (0.74, 0.62),
    },
    "final": {
        "noc": (0.66, 0.59),
        "occ": (7.09, 6.22),
        "occ-in": (6.21, 5.30),
        "occ-out": (8.71, 7.90),
        "all": (1.19, 1.06),
    },
    "albedo": {
        "noc": (0.34, 0.32),
        "occ": (6.35, 5.58),
        "occ-in": (5.83, 5.23),
        "occ-out": (7.29, 6.20),
        "all": (0.84, 0.76),
    },
}
"""By pass and region: the errors of RAFT and of GMA, both trained on C+T+S/K."""


@dataclass(frozen=True)
class PaperAblation:
    """A row of table 3: mean errors of networks trained on C+T."""

    component: str
    block: str
    """The choice that the component is one side of."""
    chairs: float
    things_clean: float
    things_final: float
    clean: float
    final: float


_FINAL_MODEL = (0.79, 3.14, 2.80, 1.30, 2.74)
TABLE_3 = (
    PaperAblation("1", "scale", 0.82, 3.10, 2.78, 1.35, 2.82),
    PaperAblation("alpha", "scale", *_FINAL_MODEL),
    PaperAblation("replace", "combination", 0.88, 3.16, 2.94, 1.41, 2.79),
    PaperAblation("concatenate", "combination", *_FINAL_MODEL),
    PaperAblation("w/o residual", "residual", 0.88, 3.13, 2.83, 1.40, 2.75),
    PaperAblation("w/ residual", "residual", *_FINAL_MODEL),
)
"""Each choice of the design with the other way beside it; the final model's is the second."""
