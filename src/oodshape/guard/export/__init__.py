"""Export a guard as one ONNX file, and run that file."""
