// The thread sanitizer sees the copies that OpenSSL 3.5 makes, but not the atomics in its tables that order them.
// It sees the work of OpenMP's threads, but not how they start and end it.
#ifdef __SANITIZE_THREAD__
extern "C" const char* __tsan_default_suppressions() {
  return "called_from_lib:libcrypto.so\n"
         "race:lockstep::openmp_region\n";
}
#endif
