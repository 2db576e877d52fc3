"""The page in the browser: choose λ for an image, certify it, attack it, browse a run.

knobs: what can be set, and the smoothed classifiers of a model at these settings;
work: what is computed; drawings: figures;
views and templates: the page, its answers and the records of a run as HTML;
worker: one piece of work at a time; desk: from a request to its answer;
server: who may ask, and what a browser may load; static: style and script.

Only server knows HTTP. A picture travels with each request.
"""
