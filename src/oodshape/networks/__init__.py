"""From images to features and logits.

`opening` turns what a user names (a timm or torchvision model, one of `zoo/`, a function, a torch.export archive)
into a `classifier`: any network whose logits come from a linear layer, read without changing it. `head` holds that
layer and what a network says about a batch; `weights` and `torch_export` read files without running what is in them.
"""
