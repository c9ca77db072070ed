"""The viewer of `gpufetch.view`: a widget whose page asks for tiles of values.

`tiles` reads them, `messages` checks and answers what the page asks, `widget` carries it over the
widget's comm, and jupyter/widget/viewer.js is the page's part.
"""
