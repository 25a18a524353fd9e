"""Python functions as tools."""

from retinue.tools.function.function_tool import FunctionTool, ToolDecorator, ToolOptions, tool
from retinue.tools.function.plain_schema import plain_schema

__all__ = ["FunctionTool", "ToolDecorator", "ToolOptions", "plain_schema", "tool"]
