# cairn_optional(NAME header library): defines the imported target cairn::NAME when header and library
# are both on this machine. Its users see CAIRN_HAVE_NAME. Also installed, for users of a static libcairn.
function(cairn_optional name header library)
  find_path(CAIRN_${name}_INCLUDE ${header})
  find_library(CAIRN_${name}_LIBRARY ${library})
  mark_as_advanced(CAIRN_${name}_INCLUDE CAIRN_${name}_LIBRARY)
  if(CAIRN_${name}_INCLUDE AND CAIRN_${name}_LIBRARY AND NOT TARGET cairn::${name})
    add_library(cairn::${name} UNKNOWN IMPORTED)
    set_target_properties(cairn::${name} PROPERTIES
      IMPORTED_LOCATION ${CAIRN_${name}_LIBRARY}
      INTERFACE_INCLUDE_DIRECTORIES ${CAIRN_${name}_INCLUDE}
      INTERFACE_COMPILE_DEFINITIONS CAIRN_HAVE_${name})
  endif()
endfunction()
cairn_optional(ISAL isa-l/crc.h isal)
cairn_optional(LIBDEFLATE libdeflate.h deflate)
cairn_optional(ZSTD zstd.h zstd)
cairn_optional(LIBURING liburing.h uring)
# Object stores are compiled with the headers of two libraries, which are loaded when they are needed; their tests are linked
# with them.
if(CAIRN_S3)
  cairn_optional(CURL curl/curl.h curl)
  cairn_optional(CRYPTO openssl/evp.h crypto)
  cairn_optional(SSL openssl/ssl.h ssl)
endif()
if(TARGET cairn::CURL)
  file(STRINGS ${CAIRN_CURL_INCLUDE}/curl/curlver.h curl_version REGEX "define LIBCURL_VERSION \"")
  string(REGEX REPLACE ".*\"([0-9.]+).*" "\\1" curl_version "${curl_version}")
endif()
if(TARGET cairn::CURL AND curl_version VERSION_LESS 7.85)
  message(STATUS "Object stores need the headers of libcurl 7.85; these are of ${curl_version}")
elseif(TARGET cairn::CURL AND TARGET cairn::CRYPTO AND NOT TARGET cairn::S3)
  add_library(cairn::S3 INTERFACE IMPORTED)
  set_target_properties(cairn::S3 PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${CAIRN_CURL_INCLUDE};${CAIRN_CRYPTO_INCLUDE}"
    INTERFACE_COMPILE_DEFINITIONS CAIRN_HAVE_S3)
endif()
