"""Where the papers that the table of methods names can be read."""

from __future__ import annotations

import re

_ARXIV = {
    "A Baseline for Detecting Misclassified and Out-of-Distribution Examples in Neural Networks": "1610.02136",
    "Scaling Out-of-Distribution Detection for Real-World Settings": "1911.11132",
    "Energy-based Out-of-distribution Detection": "2010.03759",
    "Enhancing the Reliability of Out-of-distribution Image Detection in Neural Networks": "1706.02690",
    "DICE: Leveraging Sparsification for Out-of-Distribution Detection": "2111.09805",
    "DICE": "2111.09805",
    "ReAct: Out-of-distribution Detection With Rectified Activations": "2111.12797",
    "ReAct": "2111.12797",
    "Extremely Simple Activation Shaping for Out-of-Distribution Detection": "2209.09858",
    "Towards Optimal Feature-Shaping Methods for Out-of-Distribution Detection": "2402.00865",
    "Scaling for Training Time and Post-hoc Out-of-distribution Detection Enhancement": "2310.00227",
    "Logit Scaling for Out-of-Distribution Detection": "2409.01175",
    "Ranked Activation Shift for Post-Hoc Out-of-Distribution Detection": "2604.08572",
    "Boosting Out-of-distribution Detection with Typical Features": "2210.04200",
    "On the Importance of Gradients for Detecting Distributional Shifts in the Wild": "2110.00218",
    "Fast Decision Boundary based Out-of-Distribution Detector": "2312.11536",
    "Detecting Out-of-Distribution Through the Lens of Neural Collapse": "2311.01479",
    "ViM: Out-Of-Distribution with Virtual-logit Matching": "2203.10807",
    "Mahalanobis++: Improving OOD Detection via Feature Normalization": "2505.18032",
    "A Simple Fix to Mahalanobis Distance for Improving Near-OOD Detection": "2106.09022",
    "Out-of-Distribution Detection with Deep Nearest Neighbors": "2204.06507",
    "CADRef: Robust Out-of-Distribution Detection via Class-Aware Decoupled Relative Feature Leveraging": "2503.00325",
    "Nearest Neighbor Guidance for Out-of-Distribution Detection": "2309.14888",
    "On Calibration of Modern Neural Networks": "1706.04599",
    "A Simple Unified Framework for Detecting Out-of-Distribution Samples and Adversarial Attacks": "1807.03888",
    "NECO: NEural Collapse Based Out-of-distribution Detection": "2310.06823",
    "Out-of-Distribution Detection with Relative Angles": "2410.04525",
}
_ELSEWHERE = {
    "BFAct: Out-of-Distribution Detection with Butterworth Filter Rectified Activations": "https://doi.org/"
    "10.1007/978-981-99-0617-8_9",
    "VRA: Variational Rectified Activation for Out-of-Distribution Detection": "https://proceedings.neurips.cc/"
    "paper_files/paper/2023/hash/5c20c00504e0c049ec2370d0cceaf3c4-Abstract-Conference.html",
    "GEN: Pushing the Limits of Softmax-Based Out-of-Distribution Detection": "https://openaccess.thecvf.com/content/"
    "CVPR2023/html/Liu_GEN_Pushing_the_Limits_of_Softmax-Based_Out-of-Distribution_Detection_CVPR_2023_paper.html",
    "Out-of-Distribution Detection Based on In-Distribution Data Patterns Memorization with Modern Hopfield Energy": (
        "https://openreview.net/forum?id=KkazG4lgKL"
    ),
}
PAPERS = {title: f"https://arxiv.org/abs/{number}" for title, number in _ARXIV.items()} | _ELSEWHERE


def cited(reference: str) -> list[tuple[str, str]]:
    """The titles in a reference, which stand between asterisks, each with its address where it is known.

    >>> cited("Sun and Li, *DICE*, ECCV 2022.")
    [('DICE', 'https://arxiv.org/abs/2111.09805')]
    """
    return [(title, PAPERS[title]) for title in re.findall(r"\*([^*]+)\*", reference) if title in PAPERS]
