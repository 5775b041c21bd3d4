"""Public data sets in the files they are published as: CIFAR, MNIST, SVHN, ImageNet's validation images.

Each reader takes the folder and gives an image set; damaged and forged files end in one clear error, and nothing in
them is run.
"""
