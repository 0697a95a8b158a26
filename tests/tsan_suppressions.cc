// What the thread sanitizer cannot see: the atomics that order the copies of OpenSSL 3.5's tables, and how OpenMP hands
// work to its threads and waits for them.
#ifdef __SANITIZE_THREAD__
extern "C" const char* __tsan_default_suppressions() {
  return "called_from_lib:libcrypto.so\n"
         "race:lockstep::openmp_region\n";
}
#endif
