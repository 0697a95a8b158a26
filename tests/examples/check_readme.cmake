# cmake -DREADME=FILE -DSOURCE=FILE -P check_readme.cmake: the README holds the source as one block of code.
file(READ ${README} readme)
file(READ ${SOURCE} source)
string(FIND "${readme}" "```cpp\n${source}```\n" at)
if(at EQUAL -1)
  message(FATAL_ERROR "${README} does not show ${SOURCE} as it is")
endif()
