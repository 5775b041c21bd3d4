"""From images to features and logits.

`loading` opens a model (timm, torchvision, Hugging Face, `zoo`, a function, a torch.export archive) as a `classifier`:
any network whose logits come from a linear map, run without changing it. `linear_maps` records the linear maps of a
forward pass, `find_head` finds the one that computes the logits, `head` holds it. `device` selects the device.
`weights` reads files of weights, `hugging_face` models of its hub, CLIP and SigLIP among them. `model_names` lists the
known networks.
"""
