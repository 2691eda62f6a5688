# What `cmake --install` puts where (GNUInstallDirs), the target `uninstall`, and the source package
# (target `package_source`):
#   bin/loratrain                               the program
#   share/man/man1, share/bash-completion       its page and completion, made from its help and keys
#   share/modulefiles/loratrain/VERSION         for Environment Modules and Lmod
#   share/doc/loratrain                         README.md, what has changed, and the pages of jobs/
#   share/loratrain/{slurm,jobs,inputs,scripts} as in the repository, and found from each other so
include(GNUInstallDirs)

add_executable(loratrain_pages src/pages.cpp)
target_link_libraries(loratrain_pages PRIVATE loratrain_config loratrain_options)
set(pages "${PROJECT_BINARY_DIR}/pages")
file(MAKE_DIRECTORY "${pages}")
add_custom_command(OUTPUT "${pages}/loratrain.1" "${pages}/loratrain.bash"
                   COMMAND loratrain_pages "${pages}" DEPENDS loratrain_pages)
add_custom_target(loratrain_made_pages ALL DEPENDS "${pages}/loratrain.1" "${pages}/loratrain.bash")

# Libraries that somebody puts into the same prefix are found wherever it is moved; those that the
# build found outside the linker's own folders, where they are.
file(RELATIVE_PATH to_libraries "/${CMAKE_INSTALL_BINDIR}" "/${CMAKE_INSTALL_LIBDIR}")
set_target_properties(loratrain PROPERTIES INSTALL_RPATH "$ORIGIN/${to_libraries}"
                                           INSTALL_RPATH_USE_LINK_PATH ON)

set(data "${CMAKE_INSTALL_DATADIR}/loratrain")
set(modulefiles "${CMAKE_INSTALL_DATADIR}/modulefiles/loratrain")
set(completions "${CMAKE_INSTALL_DATADIR}/bash-completion/completions")
set(folders "${CMAKE_INSTALL_BINDIR}" "${CMAKE_INSTALL_MANDIR}/man1" "${CMAKE_INSTALL_DOCDIR}"
            "${modulefiles}" "${completions}" "${data}")
set(LORATRAIN_NEW_FOLDERS "${PROJECT_BINARY_DIR}/install_new_folders.txt")
configure_file("${PROJECT_SOURCE_DIR}/scripts/cmake/note_new_folders.cmake.in"
               "${PROJECT_BINARY_DIR}/note_new_folders.cmake" @ONLY)
install(SCRIPT "${PROJECT_BINARY_DIR}/note_new_folders.cmake")

file(RELATIVE_PATH LORATRAIN_TO_PREFIX "/${modulefiles}" "/")
string(REGEX REPLACE "/$" "" LORATRAIN_TO_PREFIX "${LORATRAIN_TO_PREFIX}")
configure_file("${PROJECT_SOURCE_DIR}/scripts/packaging/modulefile.in"
               "${PROJECT_BINARY_DIR}/pages/modulefile" @ONLY)

install(TARGETS loratrain RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
install(FILES "${pages}/loratrain.1" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1")
install(FILES "${pages}/loratrain.bash" DESTINATION "${completions}" RENAME loratrain)
install(FILES "${pages}/modulefile" DESTINATION "${modulefiles}" RENAME "${PROJECT_VERSION}")
install(FILES README.md src/CHANGELOG.md DESTINATION "${CMAKE_INSTALL_DOCDIR}")
install(DIRECTORY jobs DESTINATION "${CMAKE_INSTALL_DOCDIR}" FILES_MATCHING
        PATTERN "*.md" PATTERN "*.svg" PATTERN papers EXCLUDE)
install(DIRECTORY jobs inputs DESTINATION "${data}")
install(DIRECTORY slurm/ DESTINATION "${data}/slurm" USE_SOURCE_PERMISSIONS
        PATTERN machine.sh EXCLUDE)
install(DIRECTORY scripts/dataprep DESTINATION "${data}/scripts" PATTERN __pycache__ EXCLUDE)
install(FILES scripts/requirements.txt scripts/mpi_environment.sh scripts/needed_packages.py
        DESTINATION "${data}/scripts")
install(PROGRAMS scripts/quickstart.sh scripts/prepare_data.py scripts/ask_adapter.py
                 scripts/check_peft_export.py scripts/exact_match.py scripts/export_metrics.py
                 scripts/fetch_real_model.py scripts/sample_rollouts.py
                 scripts/tune_with_optuna.py scripts/tune_with_peft.py
        DESTINATION "${data}/scripts")

add_custom_target(uninstall
  COMMAND ${CMAKE_COMMAND} "-DMANIFEST=${PROJECT_BINARY_DIR}/install_manifest.txt"
          "-DNEW_FOLDERS=${LORATRAIN_NEW_FOLDERS}" -P "${PROJECT_SOURCE_DIR}/scripts/cmake/uninstall.cmake")

set(CPACK_PACKAGE_NAME loratrain)
set(CPACK_PACKAGE_VERSION "${PROJECT_VERSION}")
set(CPACK_SOURCE_GENERATOR TGZ)
set(CPACK_SOURCE_PACKAGE_FILE_NAME "loratrain-${PROJECT_VERSION}")
set(CPACK_SOURCE_IGNORE_FILES "/\\\\.git/" "/\\\\.git$" "/build[^/]*/" "/runs/" "/models/" "/shared/"
    "/__pycache__/" "/\\\\.venv/" "/gpu_visit_out/" "/slurm/machine\\\\.sh$")
configure_file("${PROJECT_SOURCE_DIR}/scripts/cmake/source_package.cmake.in"
               "${PROJECT_BINARY_DIR}/source_package.cmake" @ONLY)
set(CPACK_INSTALL_SCRIPTS "${PROJECT_BINARY_DIR}/source_package.cmake")
include(CPack)
