// Multiplies two matrices through the installed library: 3.
#include <lockstep/autograd/creation.h>
#include <lockstep/autograd/matmul.h>

using namespace lockstep;

int main() { return matmul(ones({1, 3}), ones({3, 1})).item<float>() == 3 ? 0 : 1; }
