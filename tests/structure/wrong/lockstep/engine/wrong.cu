namespace {

__global__ void set(int* p) { *p = 1; }

}  // namespace
