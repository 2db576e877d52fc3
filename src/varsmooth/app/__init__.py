"""The page in the browser: choose λ for an image, certify it, attack it, browse a run.

options: what a visitor sets, and the smoothed classifiers of a model at these options;
work: what is computed; drawings: figures;
views and templates: the page, its results and the records of a run as HTML;
worker: one job at a time; backend: request handlers;
server: which requests are allowed, and what a browser may load; static: style and script.

Only server deals with HTTP. Each request carries its picture.
"""
