"""What commands show: tables, plots and pictures, printed, as JSON, or as a page that needs no other file.

`tables`, `plots`, `page` and `report` know nothing of what they show. The other modules make the report of one command
each: frames of values, plots and pictures.
"""
