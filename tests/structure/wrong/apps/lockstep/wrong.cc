// Prints
// a name.
void f(char* name) { std::puts(name); }
