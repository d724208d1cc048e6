"""ONNX: models as graphs for any ONNX runtime, written by hand."""
