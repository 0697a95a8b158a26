// The thread sanitizer sees the copies that OpenSSL makes, but not the atomics with which its tables (of 3.5) order
// them.
#ifdef __SANITIZE_THREAD__
extern "C" const char* __tsan_default_suppressions() { return "called_from_lib:libcrypto.so\n"; }
#endif
