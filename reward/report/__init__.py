"""What commands show: tables, plots and pictures, printed, as JSON, or as pages that need no other file.

`tables`, `plots` and `page` know nothing of what they show. The other modules make the report of one command each.
"""

from reward.report.tables import Grid, markdown_table

__all__ = ["Grid", "markdown_table"]
