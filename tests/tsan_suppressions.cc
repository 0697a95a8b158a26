// The thread sanitizer sees the copies that OpenSSL 3.5 makes, but not the atomics in its tables that order them.
// It sees the work of the threads of OpenMP and oneDNN, but not how these libraries start and end it. The faults that
// tests inject look at all descriptors of a process, whoever closes them meanwhile.
#ifdef __SANITIZE_THREAD__
extern "C" const char* __tsan_default_suppressions() {
  return "called_from_lib:libcrypto.so\n"
         "race:lockstep::openmp_region\n"
         "race:libdnnl.so\n"
         "race:dnnl::memory::desc\n"
         "race:cut_all_connections\n";
}
#endif
