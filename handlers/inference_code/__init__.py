"""A model's own inference code, as Hugging Face's and SageMaker's containers run it.

`handler.py` has a class:

    class EndpointHandler:
        def __init__(self, path=""): ...
        def __call__(self, data): ...        # data["inputs"], and "parameters" where they are sent

`inference.py` has one or more functions, each with `context` as a further argument if it takes one:

    def model_fn(model_dir): ...             # by default the model of `mode`
    def input_fn(body, content_type): ...    # by default an object with inputs
    def predict_fn(data, model): ...         # by default model(inputs, **parameters)
    def output_fn(prediction, accept): ...   # by default JSON
    def transform_fn(model, body, content_type, accept): ...     # in the place of the last three
"""
